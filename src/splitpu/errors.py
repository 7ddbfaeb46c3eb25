"""The errors a user can cause, each one sentence long: what was given, what is wrong with it, what to do."""


class SplitPUError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(SplitPUError, ValueError):
    """Something the user gave (data, labels, option, file) cannot be used as it is."""


class ModelFileError(InputError):
    """A model file is cut short, of another version, or not a model file at all."""


class MissingExtraError(SplitPUError, ImportError):
    """An optional dependency is needed for this input; the message says which extra to install."""


class Interrupted(SplitPUError):
    """The run was asked to stop and has saved its state."""


class RankLost(SplitPUError):
    """Another process of a run in several processes has ended, so that this one cannot go on."""


class SplitPUWarning(UserWarning):
    """Base of every warning this package gives."""
