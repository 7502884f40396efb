import collections
import heapq
import string
import textwrap

TEXT = """It was the best of times, it was the worst of times, it was the age of wisdom,
it was the age of foolishness"""
words = TEXT.lower().translate(str.maketrans("", "", string.punctuation)).split()
print(heapq.nlargest(2, collections.Counter(words).items(), key=lambda item: (item[1], item[0])))
print(textwrap.shorten(TEXT, width=30))
