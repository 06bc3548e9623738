"""The program `paddlecloud`: the commands of PaddlePaddle Cloud's client, in both of its spellings."""
