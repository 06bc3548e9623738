"""HDFS, over WebHDFS and over its native protocol."""
