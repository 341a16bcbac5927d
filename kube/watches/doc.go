// Package watches builds the caches of all roles. Its informers reconnect within a second
// and record for how long a watch is down, so that no role decides from a stale cache.
package watches
