#!/bin/sh
exec "$1" --update
