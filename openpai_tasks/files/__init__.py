"""Files and folders of this machine that others may have replaced."""
