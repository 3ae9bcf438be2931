"""The version of this package, the one place that has it: the wheel, `sluice --version` and reports read it here."""

VERSION = "0.1.0"
