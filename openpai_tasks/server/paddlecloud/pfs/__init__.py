"""The file service of PaddleCloud: `/api/v1/pfs/…`."""
