// Command outrigger runs one of Outrigger's roles: operator, worker or webhook.
package main
