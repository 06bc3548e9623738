"""PFS, the file service of PaddleCloud."""
