"""`splitpu methods`. Needs no torch."""

from splitpu.cli.output import print_json
from splitpu.methods.registry import METHODS, Method


def run_methods(*, json: bool) -> int:
    """Which methods there are, and when to use which."""
    if json:
        print_json({"methods": [_facts(method) for method in METHODS.values()]})
        return 0
    width = max(len(name) for name in METHODS)
    for method in METHODS.values():
        facts = _facts(method)
        print(f"{method.name:<{width}}  {method.summary}")
        for what in ("assumes", "needs", "settings", "citation"):
            value = facts[what]
            print(f"{'':<{width}}    {what}: {', '.join(value) if isinstance(value, list) else value}")
    print("\nChoose one with: splitpu fit DATA --method NAME")
    print("Put several side by side with: splitpu compare DATA --method NAME,NAME")
    return 0


def _facts(method: Method) -> dict[str, str | list[str]]:
    asked = {
        "prior": method.needs_prior,
        "true labels": method.needs_truth,
        "rows to choose its epoch by, taken from the data where these are many": method.needs_rows_aside,
    }
    needs = [what for what, needed in asked.items() if needed] or ["nothing besides the data"]
    return {
        "name": method.name,
        "title": method.title,
        "when": method.summary,
        "assumes": method.assumes,
        "needs": needs,
        "settings": [section for section in method.sections if section not in ("rounds", "threshold")],
        "citation": method.citation,
    }
