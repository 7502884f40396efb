import random
import statistics as st

values = [2, 4, 4, 4, 5, 5, 7, 9]
print(st.mean(values), st.median(values), st.mode(values), st.pstdev(values))
print(st.quantiles(values, n=4), round(st.correlation([1, 2, 3], [2, 4, 6]), 6))
random.seed(7)
print(len({random.randint(1, 6) for _ in range(200)}))
st.linear_regression([1, 2, 3], [3, 5, 7])
