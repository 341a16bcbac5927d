// Package tools tests tools/build.sh with a compiler that compiles nothing, and a mirror of
// the publishers.
package tools
