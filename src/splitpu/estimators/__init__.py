"""The scikit-learn face: one classifier a method, each of which fits, predicts, clones, searches and pickles."""
