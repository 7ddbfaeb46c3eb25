"""splitpu"""
