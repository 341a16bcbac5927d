// Command tools puts the programs that tests, linters and the local stack run
// into bin/: it takes what this machine has, downloads what publishers have
// built, and compiles the rest. tools/build.sh runs it.
package main
