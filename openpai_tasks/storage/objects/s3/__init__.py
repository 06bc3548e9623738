"""S3 buckets."""
