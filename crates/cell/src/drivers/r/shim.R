# Evaluates cell.R, which is beside it. R reads a script as it reads what is typed,
# and tries to parse all lines of an expression anew at each: 100 ms for a long one.
eval(
  parse(
    file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "cell.R"),
    keep.source = FALSE
  ),
  new.env(parent = baseenv())
)
