'use strict';
require('./session.cjs').serve(require('./types.cjs').convert);
