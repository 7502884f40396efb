x <- 1:10
y <- 2 * x + 1
fit <- lm(y ~ x)
print(round(coef(fit), 3))
png("fit.png", width = 400, height = 300)
plot(x, y)
abline(fit)
invisible(dev.off())
cat(file.exists("fit.png"), "\n")
