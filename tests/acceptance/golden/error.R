f <- function(x) {
  stop("no ", x)
}

cat("before\n")
f("luck")
