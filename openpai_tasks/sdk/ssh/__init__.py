"""ssh into containers: keys, hosts, connections, the files of OpenSSH."""
