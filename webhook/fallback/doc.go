// Package fallback reads from a cache, and from the API server itself while the
// cache may be out of date.
package fallback
