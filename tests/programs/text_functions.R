words <- strsplit("the cat and the dog and the bird", " ")[[1]]
counts <- sort(table(words), decreasing = TRUE)
print(head(counts, 2))
print(sapply(split(mtcars$mpg, mtcars$cyl), mean))
f <- function(n) if (n < 2) n else f(n - 1) + f(n - 2)
print(vapply(0:10, f, numeric(1)))
