# SIGINT: it raises an interrupt where code runs, and waits everywhere else.

hold <- function(is_held) .Internal(interruptsSuspended(is_held))

# Evaluates an expression that can be interrupted; gives the interrupt, if there was one.
interruptible <- function(expression) {
  tryCatch({
    on.exit(hold(TRUE))
    hold(FALSE)
    expression
    NULL
  }, interrupt = function(e) {
    hold(TRUE)
    e
  })
}

# Forgets the signals that have come.
forget_interrupts <- function() {
  repeat if (is.null(interruptible(Sys.sleep(0.0001)))) break
}
