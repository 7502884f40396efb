import urllib.request

print(urllib.request.urlopen("https://example.org/", timeout=5).status)
