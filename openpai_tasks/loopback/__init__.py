"""Server processes of ours on this machine, on loopback: the embedded cluster and the portal."""
