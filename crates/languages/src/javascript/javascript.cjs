'use strict';
require('./session.cjs').serve((code) => code);
