// Package tools tests tools/build.sh with a simulated compiler and a mirror of the publishers.
package tools
