// Stack traces without the frames of the driver, and of what of Node it runs on.
'use strict';

const HIDDEN = /^\s+at .*node:(?:inspector|vm|internal\/(?:process|vm|modules|main|timers))\b/;

function withoutDriver(text) {
  const lines = [];
  for (const line of text.split('\n')) {
    if (!HIDDEN.test(line) && !line.includes(`${__dirname}/`)) lines.push(line);
    // The properties of an error follow its last frame.
    else if (line.endsWith(' {')) lines.push(`${lines.pop() ?? ''} {`);
  }
  return lines.join('\n');
}

module.exports = { withoutDriver };
