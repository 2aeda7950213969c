"""`python -m sink.demo.orders`: now `python -m sink.devtools.demo.orders`."""

from sink.devtools.demo.orders import main

if __name__ == "__main__":
    main()
