"""PU methods, each built of stages that the engine runs."""
