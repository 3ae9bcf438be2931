"""Files, wherever they lie: a local disk, HDFS, an object store, and the directories of the local tiers."""
