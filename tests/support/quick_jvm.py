"""How a JVM of a test is started: compiled once and in haste, half the processor time of a run that short."""

QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
