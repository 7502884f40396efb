library(parallel)

limit <- as.numeric(readLines("/sys/fs/cgroup/memory.max"))
lines <- readLines("/proc/meminfo")
total <- as.numeric(sub("MemTotal: *([0-9]+) kB", "\\1", grep("^MemTotal", lines, value = TRUE)))
cat(detectCores(), detectCores(logical = FALSE), total * 1024 == limit, "\n")

squares <- mclapply(1:4, function(n) n^2, mc.cores = 2)
cat(unlist(squares), "\n")
cat(nchar(system("uname -n", intern = TRUE)) > 0, Sys.info()[["sysname"]], "\n")
