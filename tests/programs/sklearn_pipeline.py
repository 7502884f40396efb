from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_iris(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
grid = GridSearchCV(
    make_pipeline(StandardScaler(), RandomForestClassifier(random_state=0)),
    {"randomforestclassifier__n_estimators": [5, 20]}, cv=3, n_jobs=1)
grid.fit(X_train, y_train)
print(accuracy_score(y_test, grid.predict(X_test)) > 0.85)
print(sorted(grid.best_params_))
