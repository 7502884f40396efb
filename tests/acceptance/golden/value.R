writeLines("kept", "out.txt")
cat("sum:", sum(1, 2), "\n")
data.frame(name = c("a", "b"), value = c(1.5, NA))
sapply(0:3, function(x) x^2)
