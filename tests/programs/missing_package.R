library(ggplot2)
print(1)
