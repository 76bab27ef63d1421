"""Why a queue, message, group or consumer fires or not, in words and numbers: for the API, the page and the terminal."""
