# Starts the driver: `Rscript driver.R 3` serves the requests that come from
# descriptor 3, and writes frames to descriptor 4. As in a package, the files share an
# environment, which sees R's own functions and nothing of the user's.
local({
  # Compiling the driver's functions would take 40 ms, for their one call.
  compile <- function(level) .Internal(enableJIT(level))
  level <- compile(0L)
  driver <- list2env(list(compile = compile, level = level), parent = baseenv())
  directory <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1]))
  for (name in c("protocol.R", "interrupts.R", "describe.R", "results.R", "plots.R", "errors.R", "session.R")) {
    eval(parse(file.path(directory, name), keep.source = FALSE), driver)
  }
  driver$serve()
})
