"""S3 buckets, by s3fs."""
