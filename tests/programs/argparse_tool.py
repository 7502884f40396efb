import argparse
import sys

parser = argparse.ArgumentParser(description="Sum numbers")
parser.add_argument("numbers", type=int, nargs="+")
parser.add_argument("--scale", type=float, default=1.0)
args = parser.parse_args(["1", "2", "3", "--scale", "2.5"])
print(sum(args.numbers) * args.scale)
try:
    parser.parse_args(["--scale", "x"])
except SystemExit as e:
    print("status", e.code)
