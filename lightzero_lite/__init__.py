"""lightzero_lite: a complete MuZero trainer, small enough to read in an afternoon."""

__version__ = "0.1.0"
