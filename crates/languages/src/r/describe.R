# Describes variables by their internal values: no method of a class is called.

LIMIT <- 1000 # variables
WIDTH <- 100 # characters of a preview
ITEMS <- 20

class_of <- function(value) as.character(.class2(value))[1]

preview <- function(value, depth = 2) {
  if (is.null(value)) return("NULL")
  if (is.function(value)) return(sprintf("function(%s)", toString(names(formals(value)))))
  if (is.environment(value) || isS4(value) || is.language(value) && !is.name(value)) {
    return(sprintf("<%s>", if (is.object(value)) attr(value, "class")[1] else typeof(value)))
  }
  if (is.name(value)) return(as.character(value))
  kind <- attr(value, "class")[1]
  names <- attr(value, "names")
  levels <- attr(value, "levels")
  shape <- attr(value, "dim")
  if (inherits(value, "data.frame", which = FALSE) && is.list(value)) {
    rows <- .row_names_info(value, 2L)
    return(sprintf("%.0f \u00d7 %d: %s", rows, length(names), toString(substr(utils::head(names, ITEMS), 1, WIDTH))))
  }
  if (!is.atomic(value) && !is.list(value)) return(sprintf("<%s>", typeof(value)))
  value <- unclass(value)
  count <- length(value)
  value <- value[seq_len(min(count, ITEMS))]
  if (is.list(value)) {
    parts <- if (depth == 0) "\u2026" else vapply(seq_along(value), function(i) preview(value[[i]], depth - 1), "")
    if (depth > 0 && !is.null(names)) {
      names <- substr(names[seq_along(parts)], 1, WIDTH)
      parts <- paste0(ifelse(nzchar(names), paste0(names, " = "), ""), parts)
    }
    text <- sprintf("list(%s%s)", if (count > 0) toString(parts) else "", if (count > ITEMS) ", \u2026" else "")
  } else {
    attributes(value) <- NULL
    if (is.integer(value) && is.character(levels)) value <- levels[value]
    if (is.character(value)) value <- encodeString(substr(value, 1, WIDTH), quote = "\"")
    text <- toString(if (is.character(value)) value else format(value, trim = TRUE, digits = 7))
    if (count > ITEMS) text <- paste0(text, ", \u2026")
    if (count != 1) text <- sprintf("%s[%s] %s", typeof(value), paste(if (is.null(shape)) count else shape, collapse = " \u00d7 "), text)
  }
  if (is.null(kind)) text else sprintf("%s: %s", kind, text)
}

in_line <- function(text) {
  text <- gsub("[[:cntrl:]]", "\ufffd", text)
  if (nchar(text) > WIDTH) paste0(substr(text, 1, WIDTH - 1), "\u2026") else text
}

# The fields of one variable.
describe_one <- function(name) {
  if (bindingIsActive(as.name(name), globalenv())) {
    return(c(field("t", "name", substr(name, 1, 200)), field("t", "type", "active binding")))
  }
  value <- get(name, globalenv(), inherits = FALSE)
  size <- if (is.atomic(value) || is.list(value) && length(unclass(value)) < 1e5) utils::object.size(unclass(value))
  c(
    field("t", "name", substr(name, 1, 200)),
    field("t", "type", substr(class_of(value), 1, 200)),
    if (!is.null(size)) field("t", "size", sprintf("%.0f", as.numeric(size))),
    field("t", "preview", tryCatch(in_line(preview(value)), error = function(e) "")))
}

describe <- function() {
  say("started")
  names <- ls(globalenv(), all.names = TRUE)
  fields <- list(field("t", "total", sprintf("%d", length(names))))
  interruptible(for (name in utils::head(names, LIMIT)) {
    fields[[length(fields) + 1]] <- tryCatch(describe_one(name), error = function(e) NULL)
  })
  say("variables", unlist(fields))
  say("done")
}
