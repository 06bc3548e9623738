"""S3 buckets, with s3fs."""
