# Executes one request after the other in the global environment.

name <- NULL # of the code that runs

parsed <- function(code) {
  lines <- strsplit(sub("^\ufeff", "", code), "\r\n|\n|\r")[[1]]
  tryCatch(
    parse(text = lines, srcfile = srcfilecopy(name, lines), keep.source = TRUE),
    error = function(e) {
      message <- conditionMessage(e)
      at <- regmatches(message, regexec("^[^\n]*?:([0-9]+):[0-9]+:", message))[[1]]
      line <- if (length(at) == 2) as.integer(at[2])
      report("parseError", message, strsplit(paste("Error:", message), "\n")[[1]], line, TRUE)
      NULL
    })
}

fail <- function(e, calls, place) {
  # The program's own calls: below them is this file, above is R's handling.
  ours <- which(vapply(calls, identical, NA, STEP))
  if (length(ours) > 0) calls <- calls[-seq_len(ours[length(ours)])]
  above <- vapply(calls, function(call) is.name(call[[1]]) && as.character(call[[1]]) %in% HANDLING, NA)
  if (any(above)) calls <- calls[seq_len(which(above)[1] - 1)]
  call <- conditionCall(e)
  head <- if (is.null(call) || identical(call, STEP)) "Error:" else
    sprintf("Error in %s :", substr(deparse(call, nlines = 1)[1], 1, 300))
  report(class(e)[1], conditionMessage(e), c(
    sprintf("%s:%d: %s", name, place[1], as.character(place)[1]),
    strsplit(paste(head, conditionMessage(e)), "\n")[[1]],
    if (length(calls) > 0) c("Traceback:", trace_of(calls))
  ), line_of(calls, place[1]))
}

HANDLING <- c(".handleSimpleError", ".signalSimpleWarning")
# How a step of the program looks among the calls.
STEP <- quote(eval(expression, globalenv()))
evaluate <- function(expression) {
  compile(level)
  value <- withVisible(eval(expression, globalenv()))
  compile(0L)
  value
}

# R's own words, but for the call of a step: nobody wrote that one.
on_warning <- function(w) {
  if (getOption("warn") != 1 || !identical(conditionCall(w), STEP)) return()
  cat("Warning:", conditionMessage(w), "\n", file = stderr())
  invokeRestart("muffleWarning")
}

# Whether it ended without an error.
run <- function(steps) {
  step <- 0
  calls <- list()
  ended_well <- FALSE
  interrupt <- interruptible(ended_well <- tryCatch({
    withCallingHandlers(
      for (step in seq_along(steps)) {
        value <- evaluate(steps[[step]])
        send_pages()
        if (value$visible) show_value(value$value, step == length(steps))
      },
      warning = on_warning,
      # The stack may be full: all else waits until it is unwound.
      error = function(e) calls <<- utils::head(sys.calls(), -1))
    TRUE
  }, error = function(e) {
    close_devices()
    fail(e, calls, attr(steps, "srcref")[[step]])
    FALSE
  }))
  if (is.null(interrupt)) return(ended_well)
  compile(0L)
  close_devices()
  line <- if (step > 0) attr(steps, "srcref")[[step]][1]
  report("interrupt", "the execution was interrupted", "Interrupted", line)
  FALSE
}

# Makes the process look as if R had been started with the user's file.
disguise <- function() {
  # What the channel carries is UTF-8, and what the code prints should be.
  if (!l10n_info()[["UTF-8"]]) Sys.setlocale("LC_CTYPE", "C.UTF-8")
  of_process <- c(commandArgs()[1], "--no-echo", "--no-restore", paste0("--file=", name))
  unlockBinding("commandArgs", baseenv())
  assign("commandArgs", function(trailingOnly = FALSE) {
    if (trailingOnly) arguments else c(of_process, if (length(arguments) > 0) "--args", arguments)
  }, baseenv())
  lockBinding("commandArgs", baseenv())
  # Warnings when they happen, in order with messages; calls know their lines.
  options(warn = 1, keep.source = TRUE, device = open_device, browser = "false", pager = "cat", menu.graphics = FALSE)
}

arguments <- character(0)

# Whether it ended without an error.
execute <- function(request) {
  first <- is.null(name)
  name <<- text_of(request$name[[1]])
  arguments <<- vapply(request$argument, text_of, "")
  if (first) disguise() else name <<- sprintf("%s[%s]", name, execution)
  if (!is.null(request$memory) && exists("mem.maxVSize")) {
    # In MiB; the interpreter itself takes 60.
    limit <- as.numeric(text_of(request$memory[[1]])) / 2^20
    mem.maxVSize(max(64, limit - 80))
  }
  forget_interrupts()
  is_running <<- TRUE
  say("started")
  steps <- parsed(text_of(request$code[[1]]))
  ended_well <- !is.null(steps) && run(steps)
  close_devices()
  flush(stdout())
  is_running <<- FALSE
  say("done")
  ended_well
}

is_running <- FALSE # whether an execution goes on

# The program called quit().
on_quit <- function(environment) {
  if (!is_running) return()
  say("ending")
  say("done")
}

serve <- function() {
  ended_well <- TRUE
  reg.finalizer(environment(serve), on_quit, onexit = TRUE)
  hold(TRUE)
  while (!is.null(request <- receive())) {
    if (!is.null(request$execution)) execution <<- text_of(request$execution[[1]])
    if (identical(request$work, list(charToRaw("describe")))) describe()
    else ended_well <- execute(request)
  }
  hold(FALSE)
  if (!ended_well) quit("no", 1, runLast = TRUE)
}
