# Uncaught errors and the calls that led to them.

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
