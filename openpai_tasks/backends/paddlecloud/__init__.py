"""PaddleCloud datacenters: the client of their API, their files on PFS, and the file that lists them."""
