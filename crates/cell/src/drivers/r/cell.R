# Takes the request from the channel (see frames/mod.rs) and runs its code. shim.R
# evaluates this in an environment that sees R's own functions and nothing of the
# user's.

HERE <- environment()
# Compiling this file's functions would take 40 ms, for their one call.
compile <- function(level) .Internal(enableJIT(level))
level <- compile(0L)

number <- as.integer(commandArgs(TRUE)[1])
path <- function(number) paste0("/proc/self/fd/", number)

# ---------------------------------------------------------------- the channel

# Opened by name for each message: R lists open connections to everybody, and
# closeAllConnections() is a common idiom.
receive <- function() {
  from <- file(path(number), "rb", raw = TRUE)
  on.exit(close(from))
  take <- function(count) {
    bytes <- raw(0)
    while (length(bytes) < count) {
      more <- readBin(from, "raw", count - length(bytes))
      if (length(more) == 0) stop("cellblock: the request ends early")
      bytes <- c(bytes, more)
    }
    bytes
  }
  size <- function(bytes) sum(as.double(bytes) * 256^(3:0))
  body <- take(size(take(4)))
  request <- list()
  at <- 0
  while (at < length(body)) {
    middle <- at + 6 + as.integer(body[at + 2])
    end <- middle + size(body[at + 3:6])
    key <- rawToChar(body[seq_len(middle - at - 6) + at + 6])
    request[[key]] <- c(request[[key]], list(body[seq_len(end - middle) + middle]))
    at <- end
  }
  request
}

number_of <- function(count) as.raw(count %/% 256^(3:0) %% 256)

field <- function(type, key, value) {
  if (!is.raw(value)) value <- charToRaw(enc2utf8(value))
  key <- charToRaw(key)
  c(charToRaw(type), as.raw(length(key)), number_of(length(value)), key, value)
}

say <- function(kind, ...) {
  body <- c(field("t", "kind", kind), ...)
  tryCatch({
    to <- file(path(number + 1L), "wb", raw = TRUE)
    on.exit(close(to))
    writeBin(c(number_of(length(body)), body), to)
  }, error = function(e) NULL) # the program closed the channel
}

# ------------------------------------------------------------------- results

FORM <- 8 * 2^20 # the supervisor's limit for one form
HTML_ROWS <- 60
# Of a table as data, as for Python's: rows, columns, values, characters, bytes.
ROWS <- 1000
COLUMNS <- 100
CELLS <- 20000
TEXT <- 2000
TABLE <- 768 * 2^10

send <- function(forms, main) {
  fields <- if (main) field("t", "main", "")
  for (type in names(forms)) {
    value <- forms[[type]]
    size <- if (is.raw(value)) length(value) else nchar(value, "bytes")
    if (size > FORM && type == "text/plain") {
      value <- iconv(rawToChar(head(charToRaw(value), FORM)), "UTF-8", "UTF-8", sub = "")
      fields <- c(fields, field("t", "failed", sprintf("text/plain: cut to %d bytes", FORM)))
    } else if (size > FORM) {
      failure <- sprintf("%s: %.0f bytes, and at most %.0f are allowed", type, size, FORM)
      fields <- c(fields, field("t", "failed", failure))
      next
    }
    form <- if (is.raw(value)) "b" else if (type == "data") "j" else "t"
    fields <- c(fields, field(form, type, value))
  }
  say("result", fields)
}

quoted <- function(text) {
  text <- substr(enc2utf8(as.character(text)), 1, TEXT)
  text <- gsub("\\", "\\\\", text, fixed = TRUE)
  text <- gsub("\"", "\\\"", text, fixed = TRUE)
  for (code in intersect(unique(utf8ToInt(paste(text, collapse = ""))), 1:31)) {
    text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
  }
  paste0("\"", text, "\"")
}

# The values of a column, as text.
shown <- function(column) {
  if (is.list(column)) vapply(column, toString, "") else trimws(format(column))
}

# The values of a column, as JSON.
json_values <- function(column) {
  values <- if (is.character(column) || is.factor(column)) {
    quoted(column)
  } else if (is.logical(column)) {
    tolower(as.character(column))
  } else if (is.numeric(column) && !is.object(column)) {
    ifelse(is.finite(column), format(column, digits = 15, trim = TRUE, scientific = NA), NA)
  } else {
    quoted(shown(column))
  }
  ifelse(is.na(values) | is.na(column), "null", values)
}

# Vectors of the same length that print well: matrices and lists do not count.
is_table <- function(value) is.data.frame(value) && ncol(value) > 0 &&
  all(vapply(value, function(column) is.null(dim(column)), NA))

# The table as data, with as many of its first rows as fit.
as_data <- function(table) {
  width <- min(ncol(table), COLUMNS)
  rows <- min(nrow(table), ROWS, max(1, CELLS %/% width))
  list_of <- function(values) sprintf("[%s]", paste(values, collapse = ","))
  repeat {
    part <- utils::head(table, rows)[seq_len(width)]
    values <- if (rows > 0) do.call(paste, c(unname(lapply(unclass(part), json_values)), sep = ","))
    names <- rownames(part)
    fields <- c(
      columns = list_of(quoted(names(part))),
      types = list_of(quoted(vapply(part, function(column) class(column)[1], ""))),
      rows = list_of(if (rows > 0) sprintf("[%s]", values)),
      total_rows = format(nrow(table), scientific = FALSE),
      total_columns = format(ncol(table), scientific = FALSE),
      index = if (!identical(names, as.character(seq_along(names)))) list_of(quoted(names)))
    data <- sprintf("{%s}", paste0("\"", names(fields), "\":", fields, collapse = ","))
    if (rows <= 1 || nchar(data, "bytes") <= TABLE) return(data)
    rows <- rows %/% 2
  }
}

escaped <- function(text) {
  text <- gsub("&", "&amp;", text, fixed = TRUE)
  gsub("<", "&lt;", gsub(">", "&gt;", text, fixed = TRUE), fixed = TRUE)
}

as_html <- function(table) {
  part <- utils::head(table, HTML_ROWS)
  row <- function(tag, cells) sprintf("<tr>%s</tr>", paste0("<", tag, ">", cells, "</", tag, ">", collapse = ""))
  columns <- lapply(unclass(part), function(column) escaped(shown(column)))
  body <- vapply(seq_len(nrow(part)), function(i) {
    row("td", c(escaped(rownames(part)[i]), vapply(columns, `[`, "", i)))
  }, "")
  if (nrow(part) < nrow(table)) body <- c(body, row("td", c("\u2026", sprintf("%d rows in all", nrow(table)))))
  paste(c("<table>", row("th", c("", escaped(names(table)))), body, "</table>"), collapse = "\n")
}

# A value that cannot be printed is a fault of that result, not of the run.
printed <- function(value) {
  tryCatch(
    utils::capture.output(eval(as.call(list(if (isS4(value)) methods::show else print, call("quote", value))), globalenv())),
    error = function(e) sprintf("<a %s that cannot be printed: %s>", class(value)[1], conditionMessage(e)))
}

show_value <- function(value, main) {
  text <- printed(value)
  send_pages() # printing draws, for some values
  forms <- list()
  if (length(text) > 0) forms[["text/plain"]] <- paste(text, collapse = "\n")
  if (is_table(value)) {
    forms[["text/html"]] <- tryCatch(as_html(value), error = function(e) NULL)
    forms[["data"]] <- tryCatch(as_data(value), error = function(e) NULL)
  }
  if (length(forms) > 0) send(forms, main)
}

# --------------------------------------------------------------------- plots

# A device opens when something is drawn and none is open. It writes a file a
# page, each when the page is done.
folder <- tempfile("plots")
devices <- 0
type_of <- c(png = "image/png", svg = "image/svg+xml", pdf = "application/pdf")

open_device <- function() {
  dir.create(folder, FALSE)
  # Also on the way out by quit().
  if (devices == 0) reg.finalizer(HERE, function(e) close_devices(), onexit = TRUE)
  devices <<- devices + 1
  able <- capabilities(c("cairo", "png"))
  page <- function(ending) sprintf("%s/%04.0f-%%04d.%s", folder, devices, ending)
  if (all(able)) grDevices::png(page("png"), 800, 600, res = 110, type = "cairo")
  else if (able[["cairo"]]) grDevices::svg(page("svg"))
  else grDevices::pdf(page("pdf"), onefile = FALSE)
}

# The devices of ours that are open, by number, with the pattern of their files.
our_devices <- function() {
  paths <- vapply(.Devices, function(device) c(attr(device, "filepath"), "")[1], "")
  names(paths) <- seq_along(paths)
  paths[dirname(paths) == folder]
}

# The last page of an open device is not done.
send_pages <- function() {
  if (devices == 0) return()
  pages <- list.files(folder, full.names = TRUE)
  for (pattern in our_devices()) {
    of_device <- startsWith(pages, sub("%04d.*", "", pattern))
    pages <- c(pages[!of_device], utils::head(pages[of_device], -1))
  }
  for (page in sort(pages)) {
    data <- readBin(page, "raw", file.size(page))
    type <- type_of[[sub(".*\\.", "", page)]]
    if (type == "image/svg+xml") data <- rawToChar(data)
    send(structure(list(data), names = type), FALSE)
    unlink(page)
  }
}

close_devices <- function() {
  if (devices == 0) return()
  for (device in names(our_devices())) grDevices::dev.off(as.integer(device))
  send_pages()
}

# -------------------------------------------------------------------- errors

place_of <- function(call) attr(call, "srcref")
file_of <- function(place) attr(place, "srcfile")$filename

# The calls between the user's code and the error, each with its place.
trace_of <- function(calls) {
  if (length(calls) > 0) vapply(seq_along(calls), function(i) {
    place <- place_of(calls[[i]])
    at <- if (is.null(place)) "" else sprintf(" at %s#%d", basename(file_of(place)), place[1])
    sprintf("%d. %s%s", i, substr(deparse(calls[[i]], nlines = 1)[1], 1, 300), at)
  }, "")
}

# The innermost line of the user's own file.
line_of <- function(calls, otherwise) {
  for (call in rev(calls)) {
    place <- place_of(call)
    if (!is.null(place) && identical(file_of(place), name)) return(place[1])
  }
  otherwise
}

report <- function(name, message, traceback, line, syntax = FALSE) {
  if (length(traceback) > 400) traceback <- c(utils::head(traceback, 200), "\u2026", utils::tail(traceback, 199))
  say("error",
    field("t", "name", name),
    field("t", "message", substr(message, 1, 60000)),
    unlist(lapply(traceback, function(text) field("t", "traceback", substr(text, 1, 2000)))),
    if (!is.null(line)) field("t", "line", format(line)),
    if (syntax) field("t", "syntax", ""))
}

# ----------------------------------------------------------------- the run

request <- receive()
text_of <- function(key) {
  text <- rawToChar(request[[key]][[1]])
  Encoding(text) <- "UTF-8"
  text
}
name <- text_of("name")

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
  tryCatch({
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
  })
}

# What the channel carries is UTF-8, and what the code says should be.
if (!l10n_info()[["UTF-8"]]) Sys.setlocale("LC_CTYPE", "C.UTF-8")
if (!is.null(request$memory) && exists("mem.maxVSize")) {
  # In MiB; the interpreter itself takes 60.
  limit <- as.numeric(rawToChar(request$memory[[1]])) / 2^20
  mem.maxVSize(max(64, limit - 80))
}
arguments <- vapply(request$argument, rawToChar, "")
Encoding(arguments) <- "UTF-8"
of_process <- c(commandArgs()[1], "--no-echo", "--no-restore", paste0("--file=", name))
own_arguments <- function(trailingOnly = FALSE) {
  if (trailingOnly) arguments else c(of_process, if (length(arguments) > 0) "--args", arguments)
}
environment(own_arguments) <- list2env(list(arguments = arguments, of_process = of_process), parent = baseenv())
unlockBinding("commandArgs", baseenv())
assign("commandArgs", own_arguments, baseenv())
lockBinding("commandArgs", baseenv())

# Warnings when they happen, in order with messages; calls know their lines.
options(warn = 1, keep.source = TRUE, device = open_device, browser = "false", pager = "cat", menu.graphics = FALSE)
say("started")
steps <- parsed(text_of("code"))
ended_well <- !is.null(steps) && run(steps)
close_devices()
say("done")
if (!ended_well) quit("no", 1, runLast = TRUE)
