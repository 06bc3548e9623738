"""What a server may answer: real answers with something wrong in them end well or in an error of ours."""
