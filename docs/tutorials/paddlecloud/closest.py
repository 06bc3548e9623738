"""Print the words whose vectors are closest to that of a word: python closest.py MODEL WORD."""

import sys

import numpy as np

model = np.load(sys.argv[1])
words = [str(word) for word in model["words"]]
vectors = model["vectors"] / np.linalg.norm(model["vectors"], axis=1, keepdims=True)
closeness = vectors @ vectors[words.index(sys.argv[2])]
print("closest:", *(words[number] for number in np.argsort(-closeness)[1:4]))
