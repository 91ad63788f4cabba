module tombolo/tools/node/pause

go 1.26.0
