"""Sentences of the library in the words of the command line: what is `prior=0.3` in Python is `--prior 0.3` here."""

import re

# Not behind a slash or a dot: there it is part of a file's name.
_AS_IN_PYTHON = re.compile(r"(?<![\w/\\.-])(prior|scenario|device)=(?:'([^']*)'|([\w.:-]*\w))")


def as_options(sentence: str) -> str:
    """The sentence as a user of the command line needs it.

    >>> as_options("give the share yourself (prior=0.3, say) or use scenario='case-control'")
    'give the share yourself (--prior 0.3, say) or use --scenario case-control'
    """
    return _AS_IN_PYTHON.sub(lambda found: f"--{found[1]} {found[2] or found[3]}", sentence)
