"""Jobs: submit, find, wait, stop, resubmit, fetch outputs."""
